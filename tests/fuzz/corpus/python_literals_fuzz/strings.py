A = 'x' r'\n' """y
"""
B: str = (
  'a' # c
  '\x41\u00e9\101')
C = {'k': 'v', "l": ('m')}
def f():
  '''doc'''
D = f(1)
