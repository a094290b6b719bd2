"""Child processes that run untrusted code: started, confined, asked, and their answers cleaned."""
