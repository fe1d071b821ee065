import unittest

from money import split


class Edges(unittest.TestCase):
    def test_one_takes_all(self):
        self.assertEqual(split(99, 1), [99])

    def test_nobody_is_an_error(self):
        with self.assertRaises(ZeroDivisionError):
            split(1, 0)
