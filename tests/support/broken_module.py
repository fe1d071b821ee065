"""A module that cannot be imported."""

raise RuntimeError("the licence server is not there")
