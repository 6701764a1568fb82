"""What every package uses: errors, random numbers, files, names, texts."""
