"""What a subject looks like: figures as trees of elements and charts. Nothing here knows Streamlit or the URL."""
