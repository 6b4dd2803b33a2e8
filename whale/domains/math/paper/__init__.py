"""Math at the paper's size: DAPO-Math-17K to train on, AIME 2024 and 2025 as the test."""
