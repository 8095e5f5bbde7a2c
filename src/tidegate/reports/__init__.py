"""Numbers + axis -> figure; figures + numbers -> one self-contained page."""
