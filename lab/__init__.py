"""Studies, benchmarks and checks whose figures docs/ cites. It may import every room, and no room imports it."""
