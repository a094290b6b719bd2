"""Child processes that run what nobody trusts: started, confined, asked, and their answers cleaned."""
