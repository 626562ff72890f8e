def score(text):
    return sum(map(ord, text))
