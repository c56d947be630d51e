"""An independent check of Freshwire's measurements, and an independent reader of its layered stream."""
