"""A second implementation of DeepSeek-V4 in plain PyTorch tensors, written from the description alone: golden oracle for
what transformers lacks (the MTP block, the release's own rounding) and an independent check of both on the backbone."""
