"""The executor ``cloud_run``: each attempt is an execution of a Cloud Run job."""
