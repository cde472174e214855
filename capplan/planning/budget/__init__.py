"""A budget: demand by the hour, growth, and the cheapest way to pay."""
