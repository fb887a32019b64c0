"""The writers of exercises, one for each task of the mini suite.

Each takes a generator, the material of a split and a size: the characters of the context, about. Training and tasks
call the same functions, so that their formats cannot differ.
"""

from __future__ import annotations

import random

from tasks.mini.material import Exercise, ExerciseMaterial, FactForm, Question, asked_of, wordings

FACTS = 4  # facts of a document in the questions about one
HOP_CHAINS = 3  # two-hop questions of one exercise
DOCUMENTS = 10  # of a two-hop question, in Lost in the Middle's arrangement
PROSE_PER_DOCUMENT = 700  # characters of prose beside each fact, at most
SUM_CHAINS = 2  # sums of one exercise
POINTS = 3  # key points of a summary
LABELS = 4  # of few-shot classification
PASSAGE_CHARACTERS = 180  # of a passage, about
QUOTED_WORDS = 14  # of the passage that is asked for
MOST_PASSAGES = 6  # to be counted
CODE_LINE = 52  # characters of a line, about
CODE_LINES_ASKED = 5  # of one exercise, in training
VARIABLES = 3  # of a chain
VARIABLE_CHAINS = 2  # of one exercise


def write_single_doc_qa(rng: random.Random, source: ExerciseMaterial, size: int, facts: int = FACTS) -> Exercise:
    """Questions about one document: ``facts`` facts of one form, with keys and values of their own, in running text."""
    form = rng.choice(source.facts)
    keys = source.keys(rng, facts)
    values = draw_values(rng, source, form, facts)
    needles = [form.needle.format(k=key, v=value) for key, value in zip(keys, values, strict=True)]
    questions = [
        Question(form.question.format(k=key), f" {value}", (value,)) for key, value in zip(keys, values, strict=True)
    ]
    rng.shuffle(questions)
    return Exercise(source.bury(rng, size, needles), tuple(questions), form=form.name)


def draw_values(rng: random.Random, source: ExerciseMaterial, form: FactForm, count: int) -> list[str]:
    """Distinct values of the kind that the form asks for."""
    return rng.sample(source.names, count) if form.value == "name" else source.numbers(rng, count)


def write_multi_doc_qa(rng: random.Random, source: ExerciseMaterial, size: int, chains: int = HOP_CHAINS) -> Exercise:
    """Two-hop questions over several documents, answered with the step between.

    Each fact is in a document of its own: who owns a thing, and the code of a person.
    """
    facts, questions = draw_hops(rng, source, chains)
    rng.shuffle(facts)
    context = as_documents(rng, source, size, facts)
    rng.shuffle(questions)
    return Exercise(context, tuple(questions))


def write_ten_documents(rng: random.Random, source: ExerciseMaterial, size: int, gold_at: int) -> Exercise:
    """The two-hop question in Lost in the Middle's arrangement: ten documents, with the asked code in one of them.

    ``gold_at``: the place of the document with the asked code, from 0. The other facts are at random places.
    """
    facts, questions = draw_hops(rng, source, HOP_CHAINS)
    gold, others = facts.pop(HOP_CHAINS), [*facts, *[""] * (DOCUMENTS - len(facts) - 1)]
    rng.shuffle(others)
    others.insert(gold_at, gold)
    return Exercise(as_documents(rng, source, size, others), tuple(questions[:1]), gold_at=gold_at)


def draw_hops(rng: random.Random, source: ExerciseMaterial, chains: int) -> tuple[list[str], list[Question]]:
    """Who owns each thing, then the code of each owner, in one order; and the question about each thing."""
    hops = wordings()["hops"]
    keys, names = source.keys(rng, chains), rng.sample(source.names, chains)
    numbers = source.numbers(rng, chains)
    facts = [hops["first"].format(k=key, n=name) for key, name in zip(keys, names, strict=True)]
    facts += [hops["second"].format(n=name, v=number) for name, number in zip(names, numbers, strict=True)]
    questions = [
        Question(hops["question"].format(k=key), hops["answer"].format(n=name, v=number), (number, name))
        for key, name, number in zip(keys, names, numbers, strict=True)
    ]
    return facts, questions


def as_documents(rng: random.Random, source: ExerciseMaterial, size: int, facts: list[str]) -> str:
    """Numbered documents, one for each fact, in running text where there is room for it; an empty fact is none."""
    share = max(size - sum(map(len, facts)), 0) // len(facts)
    return "\n".join(
        f"Document {index}: "
        + (source.bury(rng, share, [fact] if fact else []) if share > PROSE_PER_DOCUMENT // 10 else fact)
        for index, fact in enumerate(facts, start=1)
    )


def write_reasoning(rng: random.Random, source: ExerciseMaterial, size: int, chains: int = SUM_CHAINS) -> Exercise:
    """Small sums in steps: look up two facts, one after the other, then add.

    Chains of two things in pages of a novel: one has coins, the other some more than it. Sums are below 19.
    """
    words = wordings()["chains"]
    keys = source.keys(rng, 2 * chains)
    needles, questions = [], []
    for base, other in zip(keys[::2], keys[1::2], strict=True):
        given, more = rng.randint(1, 9), rng.randint(1, 9)
        first = words["given"].format(k=base, n=given)
        needles += [first, words["more"].format(k=other, n=more, j=base)]
        result = f"{more} + {given} = {more + given}."
        answer = f" {more} more than the {base}. {first} {result}"
        questions.append(Question(words["question"].format(k=other), answer, (f"= {more + given}.",)))
    rng.shuffle(needles)
    rng.shuffle(questions)
    return Exercise(source.bury(rng, size, needles), tuple(questions))


def write_summary(rng: random.Random, source: ExerciseMaterial, size: int, points: int = POINTS) -> Exercise:
    """Extractive summary: key points, marked in the text, are repeated in order.

    Key points are sentences of other pages than those around them.
    """
    words = wordings()["summary"]
    sentences = source.sentences(rng, points)
    marked = [words["point"].format(n=index, s=sentence) for index, sentence in enumerate(sentences, start=1)]
    pages = max(size - sum(map(len, marked)), 0) // (points + 1)
    cuts = sorted(rng.uniform(0.2, 1.8) for _ in range(points))
    parts = []
    for point, share in zip(marked, cuts, strict=True):
        parts += [source.text(rng, round(pages * share)), point]
    context = "\n".join([*parts, source.text(rng, pages)])
    return Exercise(context, (Question(words["question"], " " + " ".join(marked), (" ".join(sentences),)),))


def write_few_shot(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Few-shot classification: the labels of keys, from examples of those keys.

    Half of the keys come twice; questions are about any of them, wherever they stand.
    """
    line = rng.choice(source.label_lines)
    labels = rng.sample(source.labels, LABELS)
    count = max(size // (len(line) + 16), 4)
    given = {key: rng.choice(labels) for key in source.keys(rng, count * 2 // 3 + 1)}
    shown = [*given, *rng.sample(list(given), count // 3)]
    rng.shuffle(shown)
    lines = [line.format(k=key, v=given[key]) for key in shown]
    asked = rng.sample(list(given), min(asked_of(count), len(given)))
    questions = [Question(line.format(k=key, v="").rstrip(), f" {given[key]}", (given[key],)) for key in asked]
    return Exercise("\n".join(lines), tuple(questions), predictable=False)


def write_passage_retrieval(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Passage retrieval: the number of the passage that ends as quoted.

    Consecutive passages of a novel, each followed by its number. The numbers have two digits and no order.
    """
    words = wordings()["passage"]
    count = max(size // (PASSAGE_CHARACTERS + 40), 2)
    passages = source.paragraphs(rng, count, PASSAGE_CHARACTERS)
    numbers = [str(number) for number in rng.sample(range(10, 100), count)] if count <= 90 else []
    numbers = numbers or [str(number) for number in rng.sample(range(100, 1000), count)]
    lines = [f"{passage} {words['end'].format(n=number)}" for passage, number in zip(passages, numbers, strict=True)]
    questions = []
    for index in rng.sample(range(count), asked_of(count, least=4, share=4)):
        quotation = " ".join(passages[index].split()[-QUOTED_WORDS:])
        questions.append(Question(words["question"].format(q=quotation), f" {numbers[index]}]", (numbers[index],)))
    return Exercise("\n".join(lines), tuple(questions))


def write_passage_count(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Passage counting: one to six passages of different novels, each after the same mark, and without numbers."""
    words = wordings()["count"]
    count = rng.randint(1, MOST_PASSAGES)
    share = max(size // count - len(words["mark"]), 20)
    context = "\n".join(words["mark"] + source.text(rng, share) for _ in range(count))
    return Exercise(context, (Question(words["question"], f" {count}", (str(count),)),))


def write_code(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Code-like copying: assignments of calls to distinct names; a question repeats one name and asks for its call."""
    count = max(size // CODE_LINE, 3)
    keys = [key.replace(" ", "_") for key in source.keys(rng, count)]
    calls = [
        f"{rng.choice(source.adjectives)}({rng.choice(source.nouns)}, {rng.choice(source.nouns)}, {rng.randrange(100)})"
        for _ in keys
    ]
    lines = [f"{key} = {call}" for key, call in zip(keys, calls, strict=True)]
    asked = rng.sample(range(count), min(CODE_LINES_ASKED, count))
    questions = [Question(f"{keys[index]} =", f" {calls[index]}", (calls[index],)) for index in asked]
    return Exercise("\n".join(lines), tuple(questions), predictable=False)


# RULER in small.


def write_multikey(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """A list of pairs, all of one form; keys have two words, values four digits."""
    line = rng.choice(source.pairs)
    count = max(size // (len(line) + 14), 3)
    pairs = dict(zip(source.keys(rng, count), source.numbers(rng, count), strict=True))
    asked = rng.sample(list(pairs), asked_of(count))
    questions = [Question(line.format(k=key, v="").rstrip(), f" {pairs[key]}", (pairs[key],)) for key in asked]
    context = "\n".join(line.format(k=key, v=value) for key, value in pairs.items())
    return Exercise(context, tuple(questions), predictable=False)


def values_in_order(rng: random.Random, source: ExerciseMaterial, key: str) -> list[tuple[str, str]]:
    """A key's first, second and third value, each as the sentence that states it and the value."""
    words = wordings()["multivalue"]
    values = source.numbers(rng, len(words["ordinals"]))
    return [
        (words["needle"].format(o=ordinal, k=key, v=value), value)
        for ordinal, value in zip(words["ordinals"], values, strict=True)
    ]


def write_multivalue(rng: random.Random, source: ExerciseMaterial, size: int, keys: int = 2) -> Exercise:
    """The first, second and third value of each of two keys, in pages of a novel."""
    needles: list[str] = []
    questions = []
    for key in source.keys(rng, keys):
        sentences, values = zip(*values_in_order(rng, source, key), strict=True)
        needles += sentences
        answer = " ".join([f" {values[0]}.", *sentences[1:]])
        questions.append(Question(wordings()["multivalue"]["question"].format(k=key), answer, values))
    rng.shuffle(questions)
    return Exercise(source.bury(rng, size, needles), tuple(questions))


def write_variables(rng: random.Random, source: ExerciseMaterial, size: int) -> Exercise:
    """Two chains of three variables; the first of each is assigned a number, each other one the one before."""
    words = wordings()["variables"]
    names = [f"{noun}{rng.randrange(10)}" for noun in rng.sample(source.nouns, VARIABLE_CHAINS * VARIABLES)]
    needles, questions = [], []
    for chain, number in enumerate(source.numbers(rng, VARIABLE_CHAINS)):
        own = names[chain * VARIABLES : (chain + 1) * VARIABLES]
        values = [number, *(f"VAR {name}" for name in own[:-1])]
        needles += [words["needle"].format(a=a, b=b) for a, b in zip(own, values, strict=True)]
        answer = " " + " = ".join(reversed(values)) + "."
        references = (number, *reversed(own[:-1]))
        questions.append(Question(words["question"].format(a=own[-1]), answer, references))
    rng.shuffle(questions)
    return Exercise(source.bury(rng, size, needles), tuple(questions))
