"""How long tokens are valid, where nothing else is asked for."""

from datetime import timedelta

TOKEN_LIFETIME = timedelta(days=30)
"""Of users, hosts and worker services. Agents renew their own after a third of it."""
