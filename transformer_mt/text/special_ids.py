"""Ids of the special tokens, the same in every tokenizer and model."""

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
