"""A domain of one's own: which day of the week it will be."""

from whale.domains.simple import qa_domain

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]


def rows():
    for start, today in enumerate(DAYS):
        for ahead in range(2, 60):
            yield {
                "question": f"Today is {today}. Which day of the week is it in {ahead} days?",
                "answer": DAYS[(start + ahead) % 7],
                "group": "within a week" if ahead < 7 else "later",
            }


def create(options):
    return qa_domain("weekdays", rows(), options)
