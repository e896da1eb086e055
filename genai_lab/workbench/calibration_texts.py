"""What a model reads while its keys and values are measured: prose, code, numbers, languages, marks, questions."""

from __future__ import annotations

from typing import Final

TEXTS: Final = (
    """The river had been rising since Tuesday, and by the weekend nobody in the village spoke of anything else. Old
Marta, who had seen three floods, moved her hens to the attic and said that the fourth would be no different. "Water is
patient," she told the children; "it waits until you stop looking." They laughed, but that night they looked.""",
    """A lens bends light because light is slower in glass than in air. Where the surface is curved, each ray meets it
at another angle, and so each is turned by another amount: rays that came in side by side go out towards one point. The
distance from the lens to that point, its focal length, is shorter the more the glass is curved.""",
    """def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


print(median([3, 1, 4, 1, 5]))  # 3
assert median([2, 4]) == 3.0, "the mean of the two in the middle"
""",
    """| year | visitors | change |
|---|---|---|
| 2019 | 48,210 | |
| 2020 | 9,874 | -79.5 % |
| 2021 | 21,006 | +112.7 % |
| 2022 | 50,331 | +139.6 % |

Total: 129,421. 17 * 23 = 391; 391 / 17 = 23; 2^10 = 1024; pi = 3.14159265.""",
    """Guten Morgen! Wie komme ich von hier zum Bahnhof? - Gehen Sie geradeaus bis zur Brücke, dann links. Merci
beaucoup, et bonne journée à vous. ¿Dónde está la biblioteca?
\u4eca\u65e5\u306f\u3044\u3044\u5929\u6c17\u3067\u3059\u306d\u3002
\u0421\u0435\u0433\u043e\u0434\u043d\u044f \u0445\u043e\u043b\u043e\u0434\u043d\u043e. <div class="note">&amp;</div>""",
    """1. Wash the rice until the water runs clear.
2. Bring 600 ml of water to the boil.
3. Add the rice and a pinch of salt, cover, and turn the heat down.
4. Wait 12 minutes. Do not lift the lid!
5. Let it rest for 5 more minutes, then loosen it with a fork.

WHY DOES THIS WORK??? Because steam, not stirring, cooks the grains evenly...""",
)
QUESTIONS: Final = (
    "What is the capital of France?",
    "Explain in three sentences why the sky is blue, and give one example.",
    "Write a short poem about autumn.",
    "Translate into German: The train is late again.",
    "Fix this code: for i in range(10) print(i)",
)
