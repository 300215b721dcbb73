"""The wiring: one folder per stage with thin nodes and the pipeline that joins them."""
