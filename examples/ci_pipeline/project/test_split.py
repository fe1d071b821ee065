import unittest

from money import split


class Split(unittest.TestCase):
    def test_nothing_is_lost(self):
        for cents in range(200):
            for people in range(1, 9):
                self.assertEqual(sum(split(cents, people)), cents)

    def test_nobody_gets_a_cent_more_than_another_but_one(self):
        shares = split(1000, 7)
        self.assertLessEqual(max(shares) - min(shares), 1)
