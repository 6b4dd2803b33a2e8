"""SearchQA at the paper's size: NQ and HotpotQA to train on, seven test sets, Wikipedia, an LLM judge."""
