"""One folder per backend, with the same file names in each. Only ``connect`` names them."""
