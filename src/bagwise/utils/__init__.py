"""What every room may use: files, signals, random numbers, limits of time, checks of input."""
