def task():
    pass
