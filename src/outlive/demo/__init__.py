"""The demonstration behind ``make demo``: real processes, one file, a crash and a stall."""
