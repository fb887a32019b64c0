"""The held-out novels are what their provenance says."""

import gzip
import hashlib
import re
import struct

from tasks.haystack import BOOKS, novels, passage


def test_every_novel_has_the_sha256_of_its_provenance():
    listed = dict(
        re.findall(r"^\| (\S+\.gz) .*`([0-9a-f]{64})` \|$", BOOKS[0].with_name("PROVENANCE.md").read_text(), re.M)
    )
    found = {path.name: hashlib.sha256(gzip.decompress(path.read_bytes())).hexdigest() for path in BOOKS}
    assert found == listed
    assert len(found) == 4


def test_archives_carry_no_time_and_no_file_name():
    for path in BOOKS:
        flags, modified = struct.unpack_from("<xxxBI", path.read_bytes())
        assert (flags, modified) == (0, 0)


def test_no_novel_holds_a_number_that_could_be_taken_for_an_answer():
    assert not [novel.name for novel in novels() if re.search("[0-9]{5}", novel.text)]


def test_a_paragraph_starts_after_a_blank_line():
    for novel in novels():
        start = novel.paragraph(near=len(novel.text) // 2)
        assert novel.text[start - 2 : start] == "\n\n"
        assert not novel.text[start].isspace()
        assert novel.paragraph(near=len(novel.text) - 1) == 0


def test_a_passage_goes_on_in_the_next_novel():
    first, second = novels()[:2]
    text = passage(0, len(first.text) - 50, 200)
    assert text == first.text[-50:] + "\n\n" + second.text[:148]
    last, total = len(novels()) - 1, sum(len(novel.text) for novel in novels())
    assert passage(last, 0, 10**9).endswith(novels()[last - 1].text)
    assert len(passage(last, 0, 10**9)) == total + 2 * last
