"""The resources, one file each. A route reads its request, calls one function, and presents what it gives."""
