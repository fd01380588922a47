from hypothesis import settings

# The same examples on every run, and no limit on their time: machines differ.
settings.register_profile("icqr", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("icqr")
