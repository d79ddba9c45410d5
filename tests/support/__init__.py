"""What the tests share: problems and files, mpigp called and started, and the pages of the documentation."""
