"""Golden traces: what fedkeel draws and computes, pinned as text. `make golden` writes them anew."""
