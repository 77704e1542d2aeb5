"""Build views of a subject: figures as trees of elements and charts. Nothing here knows Streamlit or the URL."""
