"""Tables: classifiers and regressors from a CSV file under rules from a JSON file."""
