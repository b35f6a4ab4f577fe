"""What was measured, as pages: comparisons, runs, sweeps and suites, each as one HTML file and its Markdown twin."""
