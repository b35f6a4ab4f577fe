"""``userrl evaluate --list``: the suites and their settings."""

from __future__ import annotations

from userrl_core.json_files import json_text


def list_suites(suite_name: str | None) -> None:
    """Print every suite on one line, or one suite with each value and its source."""
    from curricula.suites import load_suite, suite_names
    from userrl.protocols.suite import still_different
    from userrl.run.suites import gyms_of
    from userrl_core.gyms.registry import gym_class

    if suite_name is None:
        for name in suite_names():
            suite = load_suite(name)
            print(f"{name}  {suite.about} ({suite.source})")
            if suite.variants:
                print(f"  variants: {', '.join(suite.variants)}")
        return
    suite = load_suite(suite_name)
    print(f"{suite.label}: {suite.about} ({suite.source})")
    values = suite.model_dump(mode="json", exclude_defaults=True)
    for key, value in values.items():
        if key in suite.sources:
            print(f"  {key}: {json_text(value)}  # {suite.sources[key]}")
    for gym in gyms_of(suite):
        print(f"  success at {gym}: {gym_class(gym).success_rule}")
    for sentence in still_different(suite):
        print(f"  {sentence}")
    for name, change in suite.variants.items():
        print(f"  variant {name}  # {change.get('source', 'ours')}")
