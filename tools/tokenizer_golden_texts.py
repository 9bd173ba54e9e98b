"""Texts of our own for make_tokenizer_goldens.py: what the small tokenizers are trained on and tried with."""
import random
import unicodedata

SENTENCES = [
    "The loom stands in the corner of the workshop, and every morning somebody winds the yarn again.",
    "A shuttle flies from left to right; a thread follows it, and the cloth grows by the width of a hair.",
    "Weavers don't count the threads, they've counted the patterns: two over, one under, two over.",
    "It's raining, isn't it? We'll wait until it stops, then we're going to the market.",
    "I'd have told you she'd arrive at 12:45 on 3 March 2019, not at 7.",
    "Prices: 1,234.50 EUR, 99 cents, 1000000 yen, 3/4 of a pound, 100% cotton, no. 42-B.",
    "def weave(rows, width=80):\n    for i in range(rows):\n        yield '#' * width  # one row\n",
    "int main(void) {\n\tprintf(\"%d threads\\n\", 128);\n\treturn 0;\n}\n",
    "SELECT name, COUNT(*) FROM cloth WHERE colour != 'red' GROUP BY name HAVING COUNT(*) >= 2;",
    "<p class=\"note\">See <a href=\"https://example.org/a?b=c&d=1#e\">the page</a>.</p>",
    "{\"key\": [1, 2.5, -3e10, null, true], \"other\": {\"nested\": \"value\"}}",
    "Der Webstuhl klappert, während draußen über die Straße größere Wagen fahren.",
    "La navette passe de gauche à droite ; le fil suit, et l'étoffe grandit à vue d'œil.",
    "El telar está en el rincón; ¿quién devana la lana mañana? ¡Yo no!",
    "Станок стоит в углу мастерской, и каждое утро кто-нибудь снова мотает пряжу.",
    "Ο αργαλειός στέκεται στη γωνία του εργαστηρίου και κάθε πρωί κάποιος τυλίγει το νήμα.",
    "織機は工房の隅に立っていて、毎朝だれかがまた糸を巻く。",
    "织布机立在作坊的角落里,每天早上都有人重新绕线。共有一百二十八根线。",
    "베틀은 작업장 구석에 서 있고 매일 아침 누군가 다시 실을 감는다.",
    "النول يقف في زاوية الورشة، وكل صباح يلف أحدهم الخيط من جديد.",
    "הנול עומד בפינת בית המלאכה, וכל בוקר מישהו מלפף שוב את החוט.",
    "करघा कार्यशाला के कोने में खड़ा है और हर सुबह कोई फिर से सूत लपेटता है।",
    "กี่ทอผ้าตั้งอยู่ที่มุมโรงงาน และทุกเช้ามีคนพันเส้นด้ายใหม่",
    "Tiếng khung cửi vang lên mỗi buổi sáng, và tấm vải lớn dần từng chút một.",
    "Emoji: 🧵 🧶 👩‍🔬 👍🏽 🇫🇷 ❤️ and symbols ← → ∑ √ ≤ ½ ² ™ € £ ¥.",
]

_random = random.Random(7)


def _shuffled():
    words = " ".join(SENTENCES).split(" ")
    return " ".join(_random.choice(words) for _ in range(30))


CORPUS = SENTENCES * 4 + [_shuffled() for _ in range(200)]

_PARTS = ["'s", "'S", "'ll", "'ſ", "'RE", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t", "12", "3", "2024", "a", "B", "the", " the", "word", "Word",
          "é", "e\u0301", "ﬁ", "ß", "İ", "ı", "K", "Å", "Ω", "Ω", "²", "Ⅷ", "१२", "中", "文字", "かな", "カナ", "ー", "。", "가", "ㄱ", "각", "😀", "👩‍👩‍👧",
          "🇩🇪", "\u200d", "\u200b", "\u00a0", "\u3000", "\u2028", "\u0085", "\ufeff", "\u00ad", "_", "-", "...", "!?", "$", "€", "+", "^", "`", "~",
          "<|end|>", "<|start|>", "<|star", "<|", "|>", "<tool>", "  wide  ", "<ls>", "<rs>", "<both>", "Café", "Cafe\u0301", "<s>", "</s>", "<unk>", "<pad>",
          "[CLS]", "[MASK]", "<sep>", "<ctl>", "ab c", "<0x41>", "<0x", "▁", "▁▁", "Ġ", "##", "</w>", "x\u0327\u0301", "Ａ", "Ｂ", "ñ\u0303",
          "\U00020000", "\U0010ffff", "\ue000", "\ufffd", "\u0378", "\u1fff", "ǅ", "ﷺ", "\u0e33", "กำ", "नि", "\u0001", "\u007f", "\u001c"]


def _mixed(count):
    return "".join(_random.choice(_PARTS) for _ in range(count))


def _random_characters(count, limit):
    out = []
    while len(out) < count:
        c = _random.randrange(1, limit)
        # Nothing that is younger than the Unicode data of some implementation.
        if unicodedata.category(chr(c)) not in ("Cn", "Cs"):
            out.append(chr(c))
    return "".join(out)


TEXTS = (["", " ", "  ", "\n", "a", "word", " word ", "wordy", "Hello, world!", " Hello", "Hello ", "a" * 60, "the " * 20, "ab" * 40]
         + SENTENCES + [_mixed(n) for n in (2, 3, 4, 6, 9, 14) for _ in range(18)]
         + [_random_characters(n, limit) for n in (3, 12) for limit in (0x80, 0x600, 0x3000, 0x110000) for _ in range(3)])

_TOKENS = ["▁Hello", "▁", "▁▁", "world", "##ing", "##", "<0xE4>", "<0xBD>", "<0xA0>", "<0xFF>", "<0x41>", "<0x4>", "Ġthe", "Ċ", "Ã", "©", "é", " ", "  a  ",
           "low</w>", "er", "er</w>", ".", "?", "'s", " 's", "n't", "do", " do not", "<pad>", "|", "h", "h", "e", "l", "l", "o", "", "中", "日本", "H", "HH", "xHx", "ab", "abc", "c"]
DECODER_TOKENS = [[]] + [[t] for t in _TOKENS] + [[_random.choice(_TOKENS) for _ in range(n)] for n in (2, 3, 4, 6, 10) for _ in range(25)]
