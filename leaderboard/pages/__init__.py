"""The pages themselves: what is asked, what is shown of it. (Of a folder `pages` Streamlit makes a menu.)"""
