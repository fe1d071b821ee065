"""A module that must not be forked: importing it makes a ZeroMQ context."""

import zmq

context = zmq.Context()
