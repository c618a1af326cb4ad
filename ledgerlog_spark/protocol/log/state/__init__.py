"""What is stored of a log: records, their bytes, pages, and walks over them."""
