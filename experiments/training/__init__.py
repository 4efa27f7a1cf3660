"""Training: Lightning's command line with a run folder, and what a configuration leaves out."""
