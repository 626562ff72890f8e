def twice(price):
    return [1, 2]
