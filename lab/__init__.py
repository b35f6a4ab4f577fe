"""Studies, benchmarks and checks whose figures the pages cite. It may import every room, and no room imports it."""
