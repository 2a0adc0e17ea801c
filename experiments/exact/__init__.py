"""What exact separation finds: agreement with enumeration, radii of digits, robust training."""
