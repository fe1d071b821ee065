"""`mitosis simulate` and the recording of workloads."""
