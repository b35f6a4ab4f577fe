"""Reports of comparisons, runs, sweeps and suites. Each is written as one HTML file or as Markdown."""
