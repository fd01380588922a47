"""Interval methods, ours and other packages', compared on the same fitted quantile models."""
