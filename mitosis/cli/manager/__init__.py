"""`mitosis manager …`: the hosts that run tasks."""
