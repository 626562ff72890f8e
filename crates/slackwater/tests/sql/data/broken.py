import math

def broken(n):
    return (n
