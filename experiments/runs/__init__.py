"""A run folder: what lies in it, who may write it, and how it is read."""
