"""The files for those who run Outlive in production."""
