"""The paper, item by item, in its own order: what it says, beside what is found here."""
