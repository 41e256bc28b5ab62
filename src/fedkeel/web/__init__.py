"""The live page: what runs below a directory are doing, served on this machine alone (`fedkeel watch`)."""
