"""The example campaign: compress and checksum every module of the standard library."""
